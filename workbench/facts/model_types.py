"""The model types that transformers and SGLang know: what AutoConfig refuses is in none of these lists.

Read from transformers' `models/auto` (CONFIG_MAPPING_NAMES) and from the config classes in SGLang's wheels.
"""

from __future__ import annotations

# First of the releases read (4.57.1, 5.3.0, 5.6.0, 5.8.1, 5.12.1, 5.19.0) that lists the type.
_BY_RELEASE = {
    "4.57.1": """
    aimv2 aimv2_vision_model albert align altclip apertus arcee aria aria_text
    audio-spectrogram-transformer autoformer aya_vision bamba bark bart beit bert bert-generation
    big_bird bigbird_pegasus biogpt bit bitnet blenderbot blenderbot-small blip blip-2
    blip_2_qformer bloom blt bridgetower bros camembert canine chameleon chinese_clip
    chinese_clip_vision_model clap clip clip_text_model clip_vision_model clipseg clvp code_llama
    codegen cohere cohere2 cohere2_vision colpali colqwen2 conditional_detr convbert convnext
    convnextv2 cpmant csm ctrl cvt d_fine dab-detr dac data2vec-audio data2vec-text
    data2vec-vision dbrx deberta deberta-v2 decision_transformer deepseek_v2 deepseek_v3
    deepseek_vl deepseek_vl_hybrid deformable_detr deit depth_anything depth_pro deta detr dia
    diffllama dinat dinov2 dinov2_with_registers dinov3_convnext dinov3_vit distilbert doge
    donut-swin dots1 dpr dpt edgetam edgetam_video edgetam_vision_model efficientformer
    efficientloftr efficientnet electra emu3 encodec encoder-decoder eomt ernie ernie4_5
    ernie4_5_moe ernie_m esm evolla exaone4 falcon falcon_h1 falcon_mamba fastspeech2_conformer
    fastspeech2_conformer_with_hifigan flaubert flava flex_olmo florence2 fnet focalnet fsmt
    funnel fuyu gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_audio gemma3n_text gemma3n_vision
    git glm glm4 glm4_moe glm4v glm4v_moe glm4v_moe_text glm4v_text glpn got_ocr2 gpt-sw3 gpt2
    gpt_bigcode gpt_neo gpt_neox gpt_neox_japanese gpt_oss gptj gptsan-japanese granite
    granite_speech granitemoe granitemoehybrid granitemoeshared granitevision graphormer
    grounding-dino groupvit helium hgnet_v2 hiera hubert hunyuan_v1_dense hunyuan_v1_moe ibert
    idefics idefics2 idefics3 idefics3_vision ijepa imagegpt informer instructblip
    instructblipvideo internvl internvl_vision jamba janus jetmoe jukebox kosmos-2 kosmos-2.5
    kyutai_speech_to_text layoutlm layoutlmv2 layoutlmv3 led levit lfm2 lfm2_vl lightglue lilt
    llama llama4 llama4_text llava llava_next llava_next_video llava_onevision longcat_flash
    longformer longt5 luke lxmert m2m_100 mamba mamba2 marian markuplm mask2former maskformer
    maskformer-swin mbart mctct mega megatron-bert metaclip_2 mgp-str mimi minimax ministral
    mistral mistral3 mixtral mlcd mllama mm-grounding-dino mobilebert mobilenet_v1 mobilenet_v2
    mobilevit mobilevitv2 modernbert modernbert-decoder moonshine moshi mpnet mpt mra mt5 musicgen
    musicgen_melody mvp nat nemotron nezha nllb-moe nougat nystromformer olmo olmo2 olmo3 olmoe
    omdet-turbo oneformer open-llama openai-gpt opt ovis2 owlv2 owlvit paligemma parakeet_ctc
    parakeet_encoder patchtsmixer patchtst pegasus pegasus_x perceiver perception_encoder
    perception_lm persimmon phi phi3 phi4_multimodal phimoe pix2struct pixtral plbart poolformer
    pop2piano prompt_depth_anything prophetnet pvt pvt_v2 qdqbert qwen2 qwen2_5_omni qwen2_5_vl
    qwen2_5_vl_text qwen2_audio qwen2_audio_encoder qwen2_moe qwen2_vl qwen2_vl_text qwen3
    qwen3_moe qwen3_next qwen3_omni_moe qwen3_vl qwen3_vl_moe qwen3_vl_moe_text qwen3_vl_text rag
    realm recurrent_gemma reformer regnet rembert resnet retribert roberta roberta-prelayernorm
    roc_bert roformer rt_detr rt_detr_resnet rt_detr_v2 rwkv sam sam2 sam2_hiera_det_model
    sam2_video sam2_vision_model sam_hq sam_hq_vision_model sam_vision_model seamless_m4t
    seamless_m4t_v2 seed_oss segformer seggpt sew sew-d shieldgemma2 siglip siglip2
    siglip2_vision_model siglip_vision_model smollm3 smolvlm smolvlm_vision speech-encoder-decoder
    speech_to_text speech_to_text_2 speecht5 splinter squeezebert stablelm starcoder2 superglue
    superpoint swiftformer swin swin2sr swinv2 switch_transformers t5 t5gemma table-transformer
    tapas textnet time_series_transformer timesfm timesformer timm_backbone timm_wrapper
    trajectory_transformer transfo-xl trocr tvlt tvp udop umt5 unispeech unispeech-sat univnet
    upernet van vaultgemma video_llava videomae vilt vipllava vision-encoder-decoder
    vision-text-dual-encoder visual_bert vit vit_hybrid vit_mae vit_msn vitdet vitmatte vitpose
    vitpose_backbone vits vivit vjepa2 voxtral voxtral_encoder wav2vec2 wav2vec2-bert
    wav2vec2-conformer wavlm whisper xclip xcodec xglm xlm xlm-prophetnet xlm-roberta
    xlm-roberta-xl xlnet xlstm xmod yolos yoso zamba zamba2 zoedepth
    """,
    "5.3.0": """
    afmoe audioflamingo3 audioflamingo3_encoder colmodernvbert cwm eomt_dinov3 ernie4_5_vl_moe
    eurobert exaone_moe fast_vlm glm46v glm4_moe_lite glm4v_moe_vision glm4v_vision glm_image
    glm_image_text glm_image_vision glm_image_vqmodel glm_moe_dsa glm_ocr glm_ocr_text
    glm_ocr_vision glm_ocr_vqmodel glmasr glmasr_encoder higgs_audio_v2 higgs_audio_v2_tokenizer
    jais2 lasr_ctc lasr_encoder layoutxlm lfm2_moe lighton_ocr lw_detr lw_detr_vit minimax_m2
    ministral3 modernvbert moonshine_streaming moonshine_streaming_encoder nanochat nemotron_h
    olmo_hybrid paddleocr_vl pe_audio pe_audio_encoder pe_audio_video pe_audio_video_encoder
    pe_video pe_video_encoder pixio pp_doclayout_v2 pp_doclayout_v3 qwen3_5 qwen3_5_moe
    qwen3_5_moe_text qwen3_5_text sam3 sam3_tracker sam3_tracker_video sam3_video
    sam3_vision_model sam3_vit_model solar_open t5gemma2 t5gemma2_encoder timesfm2_5
    vibevoice_acoustic_tokenizer vibevoice_acoustic_tokenizer_decoder
    vibevoice_acoustic_tokenizer_encoder vibevoice_asr video_llama_3 video_llama_3_vision
    voxtral_realtime voxtral_realtime_encoder voxtral_realtime_text youtu
    """,
    "5.6.0": """
    - EvollaModel aimv2_text_model align_text_model align_vision_model altclip_text_model
    altclip_vision_model blip_2_vision_model blip_text_model blip_vision_model
    blt_global_transformer blt_local_decoder blt_local_encoder blt_patcher bridgetower_text_model
    bridgetower_vision_model chameleon_vqgan chinese_clip_text_model chmv2 clap_audio_model
    clap_text_model clipseg_text_model clipseg_vision_model clvp_decoder clvp_encoder cohere_asr
    csm_depth_decoder_model dia_decoder dia_encoder emu3_text_model emu3_vqgan
    ernie4_5_vl_moe_text ernie4_5_vl_moe_vision fastspeech2_conformer_hifigan flava_image_model
    flava_multimodal_model flava_text_model florence_vision gemma4 gemma4_audio gemma4_text
    gemma4_vision git_vision_model granite_speech_encoder groupvit_text_model
    groupvit_vision_model hy_v3 idefics2_perceiver idefics2_vision idefics_perciever
    idefics_vision instructblip_qformer instructblip_vision_model instructblipvideo_qformer
    instructblipvideo_vision_model janus_vision_model janus_vqgan jina_embeddings_v3
    kosmos_2_5_text_model kosmos_2_5_vision_model kosmos_2_text_model kosmos_2_vision_model
    llama4_vision_model metaclip_2_text_model metaclip_2_vision_model mistral4 mlcd_vision_model
    mllama_text_model mllama_vision_model moshi_depth musicflamingo musicgen_decoder
    musicgen_melody_decoder nomic_bert openai_privacy_filter owlv2_text_model owlv2_vision_model
    owlvit_text_model owlvit_vision_model paddleocr_vl_text paddleocr_vl_vision
    phi4_multimodal_audio phi4_multimodal_vision pi0 pix2struct_text_model pix2struct_vision_model
    pp_chart2table pp_lcnet pp_lcnet_v3 pp_ocrv5_mobile_det pp_ocrv5_mobile_rec
    pp_ocrv5_server_det pp_ocrv5_server_rec qianfan_ocr qianfan_ocr_vision
    qwen2_5_omni_audio_encoder qwen2_5_omni_bigvgan qwen2_5_omni_dit qwen2_5_omni_talker
    qwen2_5_omni_text qwen2_5_omni_thinker qwen2_5_omni_token2wav qwen2_5_omni_vision_encoder
    qwen2_5_vl_vision qwen2_vl_vision qwen3_5_moe_vision qwen3_5_vision
    qwen3_omni_moe_audio_encoder qwen3_omni_moe_talker_code_predictor qwen3_omni_moe_talker_text
    qwen3_omni_moe_text qwen3_omni_moe_thinker qwen3_omni_moe_vision_encoder qwen3_vl_moe_vision
    qwen3_vl_vision sam3_detr_decoder sam3_detr_encoder sam3_geometry_encoder sam3_lite_text
    sam3_lite_text_detr_decoder sam3_lite_text_detr_encoder sam3_lite_text_geometry_encoder
    sam3_lite_text_mask_decoder sam3_lite_text_text_model sam3_mask_decoder siglip2_text_model
    siglip_text_model slanet slanext speecht5_hifigan t5_gemma_module t5gemma2_decoder
    t5gemma2_text uvdoc uvdoc_backbone videomt xclip_text_model xclip_vision_model
    """,
    "5.8.1": """
    deepseek_v4 deimv2 exaone4_5 exaone4_5_vision gemma4_assistant granite4_vision
    granite4_vision_text granite_speech_plus granite_speech_plus_encoder laguna minicpmv4_6
    minicpmv4_6_vision pp_formulanet
    """,
    "5.12.1": """
    cohere2_moe cosmos3_omni deepseek_ocr2 deepseek_ocr2_encoder deepseek_ocr2_sam_vision_model
    deepseek_ocr2_text deepseek_ocr2_vision deepseek_v32 diffusion_gemma diffusion_gemma_text
    gemma4_unified gemma4_unified_assistant gemma4_unified_audio gemma4_unified_text
    gemma4_unified_vision glmga hrm_text hyperclovax mellum minimax_m3_vl minimax_m3_vl_text
    minimax_m3_vl_vision parakeet_rnnt parakeet_tdt pp_lcnet_v4 pp_ocrv6_medium_det
    pp_ocrv6_small_det pp_ocrv6_small_rec pp_ocrv6_tiny_rec rf_detr rf_detr_dinov2 sapiens2
    sapiens2_head
    """,
    "5.19.0": """
    axk1 axk2 canary canary_decoder cohere_compass cohere_compass_text cohere_compass_vision
    cosmos3_edge cosmos3_edge_text cosmos3_edge_vision embedding_gemma2 embedding_gemma2_text esmc
    esmfold2 fun_asr_nano fun_asr_nano_encoder glm5_next glm5_next_text glm5_next_vision
    granite_speech5_ctc granite_speech5_encoder granite_swa granitemoe_swa gte hunyuan_vl
    hunyuan_vl_text hunyuan_vl_vision hy_v4 hyperclovax_vision_v2 inkling_audio inkling_mm_model
    inkling_text inkling_vision kimi_k25 kimi_k25_vision kimi_linear mimo_v2_flash minicpm3
    minicpmv4_7 minicpmv4_7_vision muse_glimmer muse_glimmer_assistant muse_glimmer_text
    muse_glimmer_vision nemotron3_5_asr nemotron3_diarization nemotron3_diarization_audio
    nemotron_asr_streaming nemotron_asr_streaming_encoder nemotron_h_omni neomme neucodec
    qwen3_asr qwen3_asr_encoder qwen4_exp qwen4_exp_text qwen4_exp_vision radio step3p5
    step3p5_vision step3p7 tipsv2 tipsv2_dpt tipsv2_text_model tipsv2_vision_model vibevoice
    videoprism videoprism_text_model videoprism_vision_model xcodec2 zaya
    """,
}
# Config classes of SGLang's own, in any of 0.5.8, 0.5.11, 0.5.12, 0.5.14 and 0.5.23.
_OF_SGLANG = """
    NemotronH_Nano_Omni_Reasoning_V3 NemotronH_Nano_VL_V2 afmoe aligner bailing_hybrid
    bailing_moe_v2 bailing_moe_v3_vl bailingmm_moe_v2_lite beam chatglm cohere2_moe cosmos3_edge
    cosmos3_edge_projector cosmos3_edge_text cosmos3_edge_vision cosmos3_omni dbrx deepseek-ocr
    deepseek_v2 deepseek_v4 deepseek_v41 deepseek_v41_text deepseek_v41_vision deepseek_vl_v2
    deepseek_vlm dots3_note dots_moe_vit dots_ocr dots_vit dots_vlm exaone falcon_h1 falcon_mamba
    gen_aligner gen_head gen_vision gigachat3_5 glm5_next glm5_next_text gpt_oss granitemoehybrid
    hy_v4 inkling_audio_model inkling_mm_model inkling_model inkling_vision_model
    intern_s2_preview intern_vit_6b internlm2 interns2_mobius interns2_mobius_text internvl_chat
    iquest_q1 iquest_q1_mtp jet_nemotron jet_vlm k2_horizon kimi_k25 kimi_k3 kimi_k3_vision
    kimi_linear kimi_vl laguna lfm2_moe locateanything longcat_flash mamba mamba2
    mimo_audio_tokenizer mimovl minicpm_sala minicpmv4_6 minicpmv4_6_vision minicpmv4_7
    minimax_m3_vl mlp_projector moonvit moonvit3d multi_modality muse_glimmer
    muse_glimmer_assistant muse_glimmer_vision muse_spark muse_spark_audio muse_spark_text
    muse_spark_vision nanbeige nemotron_h nemotron_h_omni nemotron_h_puzzle nvila nvila_lite olmo3
    perception_encoder phimoe pointsv1.5_chat qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_text
    qwen3_asr qwen3_asr_thinker qwen3_next qwen3_omni_moe qwen3_omni_moe_audio_encoder
    qwen3_omni_moe_talker_code_predictor qwen3_omni_moe_talker_text qwen3_omni_moe_text
    qwen3_omni_moe_thinker qwen3_omni_moe_vision_encoder qwen3_vl qwen3_vl_moe qwen3_vl_moe_text
    qwen3_vl_text qwen4_exp qwen4_exp_text radio spark2_5 step3_text step3_vision_encoder step3_vl
    step3p5 step3p7 unlimited-ocr unlimited_language vision xllm zaya
"""

FIRST_SEEN = {name: release for release, names in _BY_RELEASE.items() for name in names.split()}
OF_SGLANG = frozenset(_OF_SGLANG.split())
